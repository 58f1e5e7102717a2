"""The edge of `/v1/*`: only this folder knows HTTP."""
