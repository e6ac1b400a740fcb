"""What is for the operator of a server alone: keys with the scope `admin`."""
