"""An audit for people and machines: `report.html`, `report.json`, `registry.yaml` and, with the extra, `report.pdf`."""
