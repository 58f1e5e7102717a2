"""The control plane: gateway, pages, ledger and jobs. Inference itself lives in `inference`."""
