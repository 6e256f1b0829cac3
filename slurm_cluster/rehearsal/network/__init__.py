"""The rehearsed VPC: routing, security groups, instance metadata, DNS and the way to the AWS API."""
