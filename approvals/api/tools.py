"""/tools and /agents/me: what an agent may propose, and as whom."""

from typing import ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from accounts.models import Agent
from approvals import representations
from approvals.api import pages
from approvals.api.endpoint import Endpoint
from approvals.models import Policy
from ledger.models import Tool, ToolVersion


class Tools(Endpoint):
    """The tenant's write tools, each in its newest version."""

    query_parameters: ClassVar = pages.PARAMETERS

    def get(self, request: Request) -> Response:
        """In the order they were registered."""
        tools, cursor = pages.page(Tool.objects.filter(tenant_id=self.actor.tenant_id), request, by="pk")
        versions = (
            ToolVersion.objects.select_related("tool")
            .filter(tool__in=tools)
            .order_by("tool_id", "-number")
            .distinct("tool_id")
        )
        policies = Policy.objects.filter(tool__in=tools).order_by("tool_id", "-version").distinct("tool_id")
        by_tool = {policy.tool_id: policy for policy in policies}
        items = [representations.tool(each, by_tool.get(each.tool_id)) for each in versions]
        return pages.answer(pages.listed(items, cursor, request))


class Me(Endpoint):
    """The calling agent."""

    def get(self, request: Request) -> Response:
        """Which agent the key is, and for which organisation it proposes."""
        agent = Agent.objects.select_related("tenant").get(pk=self.agent.id)
        return Response(
            {
                "id": str(agent.pk),
                "name": agent.name,
                "organisation": {"id": str(agent.tenant_id), "name": agent.tenant.name},
            }
        )
