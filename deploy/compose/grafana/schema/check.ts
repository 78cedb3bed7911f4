// What a dashboard of ours may be: Grafana's own types, with the options of each panel type in place of
// `Record<string, unknown>`, and required where Grafana leaves optional what we promise.
import type { Dashboard, FieldConfig, FieldConfigSource, Panel, RowPanel } from "@grafana/schema";
import type { Options as StatOptions } from "@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen.d.ts";
import type {
  FieldConfig as StatesFieldConfig,
  Options as StatesOptions,
} from "@grafana/schema/dist/types/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen.d.ts";
import type {
  FieldConfig as LinesFieldConfig,
  Options as LinesOptions,
} from "@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen.d.ts";

// As it is in JSON: a string enum is one of its strings, a numeric one is a number.
type Json<T> = T extends string
  ? `${T}`
  : T extends number | boolean | null | undefined
    ? T
    : T extends (infer Item)[]
      ? Json<Item>[]
      : { [Key in keyof T]: Json<T[Key]> };

interface DataSource {
  type: "prometheus";
  uid: "kvcompass-prometheus";
}

// `@grafana/schema` leaves the queries of a data source to its plugin; these are the fields we use.
interface PrometheusTarget {
  refId: string;
  datasource: DataSource;
  editorMode: "code" | "builder";
  expr: string;
  legendFormat: string;
  range: boolean;
  instant: boolean;
}

type Checked<Type extends string, Options, Custom> = Omit<
  Json<Panel>,
  "type" | "options" | "fieldConfig" | "targets" | "datasource"
> & {
  id: number;
  type: Type;
  title: string;
  description: string;
  datasource: DataSource;
  targets: PrometheusTarget[];
  gridPos: Json<NonNullable<Panel["gridPos"]>>;
  options: Json<Options>;
  fieldConfig: Omit<Json<FieldConfigSource>, "defaults"> & {
    defaults: Omit<Json<FieldConfig>, "custom" | "unit"> & { unit: string; custom: Json<Custom> };
  };
};

type CheckedPanel =
  | Checked<"stat", StatOptions, Record<string, never>>
  | Checked<"state-timeline", StatesOptions, StatesFieldConfig>
  | Checked<"timeseries", LinesOptions, LinesFieldConfig>
  | (Omit<Json<RowPanel>, "panels"> & { panels: [] });

export type CheckedDashboard = Omit<Json<Dashboard>, "panels"> & { uid: string; panels: CheckedPanel[] };
