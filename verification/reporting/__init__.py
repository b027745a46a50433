"""An audit for people and machines: `report.html`, `report.json` and `registry.yaml`."""
