"""What people type and read: numbers with units, tables, progress, and the frame of every command."""
