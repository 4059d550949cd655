"""What ``results/`` is made with: settings, trainers, experiments, records, claims, search, metrics and measuring."""
