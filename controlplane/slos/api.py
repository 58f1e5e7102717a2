"""Objectives under /api/slos/: an organization's, or the installation's under the zero id."""

from uuid import UUID

from rest_framework.response import Response

from controlplane.core.api.schema import CREATED, Whole, operation
from controlplane.core.api.views import ApiView
from controlplane.slos import handling, selectors, services, shapes
from controlplane.slos.checks import ObjectiveDraft, StageBody
from controlplane.slos.duties import DutyBody, duties_now, duty_hand_over
from controlplane.slos.models import EVERYONE
from controlplane.slos.openslo.documents import Imported, openslo_export, openslo_import

OF_ORGANIZATION = "api/slos/organizations/<org:organization_id>"


class Objectives(ApiView, at=f"{OF_ORGANIZATION}/objectives"):
    @operation(list_of=Whole(shapes.ObjectiveJson))
    def get(self, organization_id: UUID) -> Response:
        """List objectives with attainment, error budget, burn rates and alerts."""
        found = selectors.objective_standings(actor=self.actor(), organization=organization_id)
        return self.listed(found, shapes.objective_json)

    @operation(body=ObjectiveDraft, answer={CREATED: shapes.ObjectiveJson}, example=shapes.EXAMPLE)
    def post(self, organization_id: UUID) -> shapes.ObjectiveJson:
        """Create an objective; rules that can never fire are refused."""
        with services.changing(self.actor(), organization_id):
            draft = self.body(ObjectiveDraft)
        made = services.objective_create(
            actor=self.actor(), organization=organization_id, draft=draft
        )
        return shapes.fresh_json(made)


class OneObjective(ApiView, at=f"{OF_ORGANIZATION}/objectives/<objective:objective_id>"):
    @operation(answer=shapes.ObjectiveJson)
    def get(self, organization_id: UUID, objective_id: UUID) -> Response:
        """Get the current state of an objective."""
        return self._told(organization_id, objective_id)

    @operation(body=ObjectiveDraft, answer=shapes.ObjectiveJson, example=shapes.EXAMPLE)
    def put(self, organization_id: UUID, objective_id: UUID) -> Response:
        """Change an objective; a new threshold or scope starts a new version with new counts."""
        actor = self.actor()
        with services.changing(actor, organization_id):
            found = selectors.objective_get(
                actor=actor, organization=organization_id, objective_id=objective_id
            )
            draft = self.body(ObjectiveDraft)
        services.objective_update(actor=actor, objective=found, draft=draft)
        return self._told(organization_id, objective_id)

    @operation()
    def delete(self, organization_id: UUID, objective_id: UUID) -> None:
        """End an objective; its alerts recover."""
        actor = self.actor()
        with services.changing(actor, organization_id):
            found = selectors.objective_get(
                actor=actor, organization=organization_id, objective_id=objective_id
            )
        services.objective_end(actor=actor, objective=found)

    def _told(self, organization: UUID, objective: UUID) -> Response:
        standing = selectors.objective_standing(
            actor=self.actor(), organization=organization, objective_id=objective
        )
        return Response(shapes.objective_json(standing))


class Alerts(ApiView, at=f"{OF_ORGANIZATION}/alerts"):
    @operation(list_of=Whole(shapes.AlertJson))
    def get(self, organization_id: UUID) -> Response:
        """List firing and recovered alerts, newest first."""
        found = selectors.alert_list(actor=self.actor(), organization=organization_id)
        return self.listed(found, shapes.alert_json)


class AlertAcknowledge(ApiView, at=f"{OF_ORGANIZATION}/alerts/<alert:alert_id>/acknowledge"):
    @operation(answer=shapes.AlertJson)
    def post(self, organization_id: UUID, alert_id: UUID) -> shapes.AlertJson:
        """Acknowledge an alert; the first to do so is kept."""
        actor = self.actor()
        handling.alert_acknowledge(actor=actor, organization=organization_id, alert_id=alert_id)
        found = selectors.alert_get(actor=actor, organization=organization_id, alert_id=alert_id)
        return shapes.alert_json(found)


class AlertAssignee(ApiView, at=f"{OF_ORGANIZATION}/alerts/<alert:alert_id>/assignee"):
    @operation(body=shapes.AssigneeBody, answer=shapes.AlertJson)
    def put(self, organization_id: UUID, alert_id: UUID) -> shapes.AlertJson:
        """Assign an alert to a member, who is told by e-mail."""
        with handling.handling(self.actor(), organization_id):
            body = self.body(shapes.AssigneeBody)
        made = handling.alert_assign(
            actor=self.actor(), organization=organization_id, alert_id=alert_id, email=body.email
        )
        return shapes.alert_json(made)


class ObjectiveSilence(
    ApiView, at=f"{OF_ORGANIZATION}/objectives/<objective:objective_id>/silence"
):
    @operation(body=shapes.SilenceBody, answer=shapes.SilenceJson)
    def put(self, organization_id: UUID, objective_id: UUID) -> shapes.SilenceJson:
        """Silence new alerts of an objective until an end, or end that."""
        actor = self.actor()
        with handling.handling(actor, organization_id):
            found = selectors.objective_get(
                actor=actor, organization=organization_id, objective_id=objective_id
            )
            body = self.body(shapes.SilenceBody)
        made = handling.objective_silence(
            actor=actor, objective=found, minutes=body.minutes, reason=body.reason
        )
        return shapes.silence_json(objective_id, made)


class Deliveries(ApiView, at=f"{OF_ORGANIZATION}/deliveries"):
    @operation(list_of=Whole(shapes.DeliveryJson))
    def get(self, organization_id: UUID) -> Response:
        """List the newest messages to channels and people, with what came of each."""
        found = selectors.delivery_list(actor=self.actor(), organization=organization_id)
        return self.listed(found, shapes.delivery_json)


class ChannelTest(ApiView, at=f"{OF_ORGANIZATION}/channels/<channel:channel_id>/test"):
    @operation(answer=shapes.DeliveryJson)
    def post(self, organization_id: UUID, channel_id: UUID) -> shapes.DeliveryJson:
        """Send a test message to a channel; the list of deliveries says what came of it."""
        made = handling.channel_test(
            actor=self.actor(), organization=organization_id, channel_id=channel_id
        )
        return shapes.delivery_json(made)


class Channels(ApiView, at=f"{OF_ORGANIZATION}/channels"):
    @operation(list_of=Whole(shapes.ChannelJson))
    def get(self, organization_id: UUID) -> Response:
        """List notification channels."""
        with services.changing(self.actor(), organization_id):
            found = selectors.channel_list(actor=self.actor(), organization=organization_id)
        return self.listed(found, shapes.channel_json)

    @operation(body=shapes.ChannelBody, answer={CREATED: shapes.ChannelJson}, step_up=True)
    def post(self, organization_id: UUID) -> shapes.ChannelJson:
        """Add a channel; returns the signing secret of a webhook once."""
        with services.changing(self.actor(), organization_id):
            body = self.body(shapes.ChannelBody)
        made = services.channel_add(
            actor=self.actor(), organization=organization_id, kind=body.kind, address=body.address
        )
        return shapes.channel_json(made, secret=True)


class OneChannel(ApiView, at=f"{OF_ORGANIZATION}/channels/<channel:channel_id>"):
    @operation()
    def delete(self, organization_id: UUID, channel_id: UUID) -> None:
        """Remove a channel."""
        services.channel_remove(
            actor=self.actor(), organization=organization_id, channel_id=channel_id
        )


class OpenSlo(ApiView, at=f"{OF_ORGANIZATION}/openslo"):
    @operation(answer=shapes.OpenSloBody)
    def get(self, organization_id: UUID) -> shapes.OpenSloBody:
        """Export all objectives as OpenSLO v1, without loss."""
        text = openslo_export(actor=self.actor(), organization=organization_id)
        return shapes.OpenSloBody(text)

    @operation(body=shapes.OpenSloBody, answer=Imported)
    def post(self, organization_id: UUID) -> Imported:
        """Import OpenSLO: update objectives of the same name, create others; all or none."""
        with services.changing(self.actor(), organization_id):
            text = self.body(shapes.OpenSloBody).yaml
        return openslo_import(actor=self.actor(), organization=organization_id, text=text)


class Stages(ApiView, at=f"{OF_ORGANIZATION}/stages"):
    @operation(list_of=Whole(shapes.StageJson))
    def get(self, organization_id: UUID) -> Response:
        """List the owners of the seven stages."""
        with services.seeing(self.actor(), organization_id):
            found, duties = selectors.stage_owners(), duties_now()
        return self.listed(found.values(), lambda one: shapes.stage_json(one, duties), "stage")


class OneStage(ApiView, at="api/slos/stages/<slug:stage>"):
    @operation(body=StageBody, answer=shapes.StageJson)
    def put(self, stage: str) -> shapes.StageJson:
        """Set the owner of a stage. Staff only."""
        with services.changing(self.actor(), EVERYONE):
            owner = self.body(StageBody)
        made = services.stage_owner_set(actor=self.actor(), stage=stage, owner=owner)
        return shapes.stage_json(made)


class OneDuty(ApiView, at="api/slos/stages/<slug:stage>/duties/<slug:duty>"):
    @operation(body=DutyBody, answer=shapes.StageJson)
    def put(self, stage: str, duty: str) -> shapes.StageJson:
        """Hand a duty of a stage over from a day on. Staff only."""
        with services.changing(self.actor(), EVERYONE):
            to = self.body(DutyBody)
        duty_hand_over(actor=self.actor(), stage=stage, duty=duty, to=to)
        return shapes.stage_json(selectors.stage_owners()[stage])
