data "aws_ec2_instance_type" "node" {
  instance_type = var.instance_type
}

locals {
  # Bottlerocket has what EFA needs on a node. Of Amazon Linux 2023, only the images with NVIDIA or Neuron drivers do.
  ami_types = { arm64 = "BOTTLEROCKET_ARM_64", x86_64 = "BOTTLEROCKET_x86_64" }
  ami_type  = local.ami_types[one(setintersection(keys(local.ami_types), data.aws_ec2_instance_type.node.supported_architectures))]
}

resource "aws_iam_role" "nodes" {
  name               = "${var.name}-nodes"
  assume_role_policy = data.aws_iam_policy_document.assume["nodes"].json
}

resource "aws_iam_role_policy_attachment" "nodes" {
  for_each = toset(["AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly"])

  role       = aws_iam_role.nodes.name
  policy_arn = "arn:aws:iam::aws:policy/${each.key}"
}

# Nodes as near to each other as there is.
resource "aws_placement_group" "efa" {
  name     = "${var.name}-efa"
  strategy = "cluster"
}

resource "aws_launch_template" "efa" {
  name          = "${var.name}-efa"
  instance_type = var.instance_type

  placement {
    group_name = aws_placement_group.efa.name
  }

  network_interfaces {
    device_index                = 0
    network_card_index          = 0
    interface_type              = "efa"
    associate_public_ip_address = true
    delete_on_termination       = true
    security_groups = [
      aws_eks_cluster.this.vpc_config[0].cluster_security_group_id,
      aws_security_group.efa.id,
    ]
  }

  # Where Bottlerocket keeps images. By default it has 20 GiB, and images for benchmarks are large.
  block_device_mappings {
    device_name = "/dev/xvdb"

    ebs {
      volume_size           = 80
      volume_type           = "gp3"
      delete_on_termination = true
    }
  }

  metadata_options {
    http_tokens = "required"
  }

  # Bottlerocket's settings. EKS adds those of the cluster.
  user_data = base64encode(<<-TOML
    [settings.kernel.sysctl]
    "vm.nr_hugepages" = "${var.huge_pages}"
  TOML
  )

  lifecycle {
    precondition {
      condition     = data.aws_ec2_instance_type.node.efa_supported
      error_message = "${var.instance_type} has no EFA. AWS lists the types that have it: filter network-info.efa-supported."
    }
  }
}

resource "aws_eks_node_group" "efa" {
  cluster_name    = aws_eks_cluster.this.name
  node_group_name = "efa"
  node_role_arn   = aws_iam_role.nodes.arn
  subnet_ids      = [aws_subnet.public["nodes"].id]
  ami_type        = local.ami_type

  launch_template {
    id      = aws_launch_template.efa.id
    version = aws_launch_template.efa.latest_version
  }

  scaling_config {
    min_size     = var.nodes
    desired_size = var.nodes
    max_size     = var.nodes
  }

  depends_on = [
    aws_iam_role_policy_attachment.nodes,
    aws_route_table_association.public,
    aws_vpc_security_group_egress_rule.efa_to_itself,
    aws_vpc_security_group_ingress_rule.efa_from_itself,
  ]
}
