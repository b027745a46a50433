"""`python -m privkde.cli`."""

from privkde.cli import main

raise SystemExit(main())
