"""What compiled rules become: a graph pass, or an artifact."""
