variable "name" {
  description = "Name of the cluster, and of everything that belongs to it."
  type        = string
  default     = "fabbench-efa"
}

variable "region" {
  description = "Region of the cluster."
  type        = string
  default     = "us-east-1"
}

variable "kubernetes_version" {
  description = "Version of Kubernetes."
  type        = string
  default     = "1.34"
}

variable "instance_type" {
  description = "Type of the nodes, with one EFA interface: several interfaces get no public addresses."
  type        = string
  default     = "m7g.16xlarge"
}

variable "nodes" {
  description = "Number of nodes."
  type        = number
  default     = 2

  validation {
    condition     = var.nodes >= 2
    error_message = "A ping-pong needs two nodes."
  }
}

variable "huge_pages" {
  description = "Huge pages of 2 MiB per node. The EFA installer sets 5128."
  type        = number
  default     = 5128
}

variable "api_cidrs" {
  description = "Addresses from which the API of the cluster can be reached, such as [\"203.0.113.7/32\"]."
  type        = list(string)

  validation {
    condition     = length(var.api_cidrs) > 0
    error_message = "Name at least the address of the machine that runs Terraform and fabbench."
  }
}
