"""What deploy/ has for systemd and Kubernetes: valid, and in step with the node and its image."""
