"""All that runs on AWS: standard library and boto3 only."""
