"""Who may do what: organisations, people with their roles, agents with their keys."""

import uuid
from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower, Now


class Tenant(models.Model):
    """An organisation. Every row of the product belongs to one; no query crosses it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=100)
    is_demo = models.BooleanField(default=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return self.name


class UserManager(BaseUserManager["User"]):
    """Makes users by e-mail address."""

    def create_user(self, email: str, password: str, **fields: Any) -> "User":
        """Stores a user with a hashed password; the address is compared without regard to case."""
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def get_by_natural_key(self, username: str | None) -> "User":
        """Finds the person who signs in with this address, written in any case."""
        return self.get(email=(username or "").strip().lower())


class User(AbstractBaseUser):
    """A person who signs in. What a person may do is said by a membership, not here."""

    email = models.EmailField(unique=True)
    name = models.CharField(max_length=100)
    is_active = models.BooleanField(default=True)

    objects: ClassVar[UserManager] = UserManager()
    USERNAME_FIELD = "email"
    REQUIRED_FIELDS = ["name"]

    class Meta:
        constraints = [models.CheckConstraint(name="email_is_lower_case", condition=Q(email=Lower("email")))]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    """What a member is trusted with; a member holds any set of these."""

    REVIEWER = "reviewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    AUDITOR = "auditor"


class Member(models.Model):
    """A person's place in one tenant, with a set of roles."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="members")
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="memberships")
    roles = ArrayField(models.CharField(max_length=20, choices=Role.choices), default=list)
    is_active = models.BooleanField(default=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="one_membership_per_person_and_tenant", fields=["tenant", "user"]),
            models.CheckConstraint(name="roles_are_known", condition=Q(roles__contained_by=Role.values)),
        ]

    def __str__(self) -> str:
        return self.user.name

    def has_role(self, *roles: Role) -> bool:
        """Whether this member, while active, holds one of the roles."""
        return self.is_active and self.user.is_active and bool({*roles} & {*self.roles})


class Agent(models.Model):
    """A program that proposes. ``owner`` is the person behind it, who may not approve its cases."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="agents")
    name = models.CharField(max_length=100)
    owner = models.ForeignKey(Member, on_delete=models.PROTECT, related_name="agents")
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="one_agent_per_name_and_tenant", fields=["tenant", "name"])
        ]

    def __str__(self) -> str:
        return self.name


class AgentKey(models.Model):
    """One secret of an agent: a public prefix and the SHA-256 of 256 random bits; the secret itself is never stored."""

    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="keys")
    prefix = models.CharField(max_length=12, unique=True)
    secret_sha256 = models.CharField(max_length=64)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"cs_{self.prefix}_…"
