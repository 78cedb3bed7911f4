"""Generated from proto/kvcompass/v1 by proto/generate.sh. Do not edit."""
