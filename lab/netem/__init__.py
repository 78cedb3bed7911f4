"""The program of a WAN router: shapes what leaves its region, cuts, heals, measures and tells."""
