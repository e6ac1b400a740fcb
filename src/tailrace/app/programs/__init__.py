"""What programs bring along for their agents: tools, agents as tools, and the types of answers."""
