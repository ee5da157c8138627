"""Policy files written: templates, and one layout for all."""
