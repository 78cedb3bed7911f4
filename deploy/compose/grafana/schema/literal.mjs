// Writes the dashboard as a TypeScript literal: in an imported JSON file every string is just a string,
// and types such as 'timeseries' | 'stat' could not be checked.
import { readFileSync, writeFileSync } from "node:fs";

const source = new URL("../dashboards/kvcompass.json", import.meta.url);
const json = JSON.stringify(JSON.parse(readFileSync(source, "utf8")), null, 2);
writeFileSync(
  new URL("dashboard.ts", import.meta.url),
  `import type { CheckedDashboard } from "./check.js";\n\nexport const dashboard: CheckedDashboard = ${json};\n`,
);
