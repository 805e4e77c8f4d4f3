#include "coordinator/config/operators.h"

#include <string>

#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

class CredentialsTest : public testing::Test {
 protected:
  Credentials credentials_{{{"admin", Role::kAdmin, "a"},
                            {"olga", Role::kOperator, "o"},
                            {"vera", Role::kViewer, "v"}},
                           "join"};
};

TEST_F(CredentialsTest, ARoleIncludesThoseBeforeIt) {
  for (const Role needed : {Role::kViewer, Role::kOperator, Role::kAdmin}) {
    EXPECT_EQ(credentials_.Admit("a", needed)->name, "admin");
    EXPECT_EQ(credentials_.Admit("o", needed).ok(), needed != Role::kAdmin);
    EXPECT_EQ(credentials_.Admit("v", needed).ok(), needed == Role::kViewer);
  }
}

TEST_F(CredentialsTest, ARefusalNamesBothRoles) {
  const absl::Status refused =
      credentials_.Admit("v", Role::kOperator).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ErrorReason(refused), "ROLE_REQUIRED");
  EXPECT_EQ(refused.message(), "vera is viewer; this needs operator");
}

TEST_F(CredentialsTest, UnknownTokensAreNobodys) {
  for (const std::string token : {"", "join", "x", "aa"}) {
    EXPECT_EQ(ErrorReason(credentials_.Admit(token, Role::kViewer).status()),
              "TOKEN_UNKNOWN");
  }
  EXPECT_TRUE(credentials_.IsJoinToken("join"));
  EXPECT_FALSE(credentials_.IsJoinToken("a"));
}

TEST_F(CredentialsTest, NewCredentialsReplaceTheOldOnes) {
  credentials_.Set({{"admin", Role::kAdmin, "b"}}, "other");
  EXPECT_FALSE(credentials_.Admit("a", Role::kViewer).ok());
  EXPECT_FALSE(credentials_.Admit("v", Role::kViewer).ok());
  EXPECT_TRUE(credentials_.Admit("b", Role::kAdmin).ok());
  EXPECT_FALSE(credentials_.IsJoinToken("join"));
  EXPECT_TRUE(credentials_.IsJoinToken("other"));
}

TEST(RoleTest, NamesAreReadBack) {
  for (const Role role : {Role::kViewer, Role::kOperator, Role::kAdmin}) {
    Role read = Role::kViewer;
    EXPECT_TRUE(ParseRole(RoleName(role), &read));
    EXPECT_EQ(read, role);
  }
  Role read;
  EXPECT_FALSE(ParseRole("root", &read));
}

}  // namespace
}  // namespace djinn::coordinator
