"""What several tests share. tests/ is on the path (pyproject.toml), so the name is `helpers` everywhere."""
