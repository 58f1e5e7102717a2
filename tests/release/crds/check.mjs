// Reads a JSON list of custom resources and checks each by the published models of its definition.
import { readFileSync } from "node:fs";

const models = {
  "keda.sh/v1alpha1": await import("@kubernetes-models/keda/keda.sh/v1alpha1"),
  "monitoring.coreos.com/v1": await import(
    "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1"
  ),
};

for (const one of JSON.parse(readFileSync(0, "utf8"))) {
  const Model = models[one.apiVersion]?.[one.kind];
  if (!Model) throw new Error(`no model of ${one.apiVersion} ${one.kind}`);
  new Model(one).validate();
  console.log(`${one.kind} ${one.metadata.name}`);
}
