from deep_lambertian.cli import main

raise SystemExit(main())
