"""What a posterior is for: reference surfaces, relighting, recognition, and the baselines they are compared with."""
