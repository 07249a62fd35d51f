from deep_lambertian.cli import run_and_leave

run_and_leave()
