"""Service level objectives: budgets, burn-rate alerts, notifications, owners of stages."""
