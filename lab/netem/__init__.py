"""The program of a WAN router: shapes what leaves its region, cuts and heals, measures, and says what it does."""
