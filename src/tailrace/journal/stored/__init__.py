"""What the journals on a database have in common: the rows, the group commit, the loop's side of the port."""
