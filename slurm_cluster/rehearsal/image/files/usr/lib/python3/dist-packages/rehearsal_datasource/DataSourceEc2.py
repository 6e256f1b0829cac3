"""cloud-init's own Ec2 data source, told that this is EC2.

It knows EC2 by DMI data, which a container has not; unsure, it would not use IMDSv2 tokens.
"""

from cloudinit.sources import DataSourceEc2 as ec2  # type: ignore[import-not-found]

ec2.identify_platform = lambda: ec2.CloudNames.AWS
get_datasource_list = ec2.get_datasource_list
