"""Studies made with the library; an extra that the core never imports."""
