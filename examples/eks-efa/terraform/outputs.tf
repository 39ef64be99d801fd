output "kubeconfig_command" {
  description = "Adds the cluster to the kubeconfig."
  value       = "aws eks update-kubeconfig --name ${aws_eks_cluster.this.name} --region ${var.region}"
}

output "zone" {
  description = "The zone of the nodes."
  value       = local.zone
}
