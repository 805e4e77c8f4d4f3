// Describes one object completely in human-readable form: a line for each
// property, with a heading.
#ifndef COORDINATOR_CTL_DETAIL_H_
#define COORDINATOR_CTL_DETAIL_H_

#include <string>

#include "djinn/v1/admin.pb.h"

namespace djinn::ctl {

std::string Detail(const v1::WorkerInfo& info);
std::string Detail(const v1::SessionInfo& info);
std::string Detail(const v1::TenantInfo& info);
std::string Detail(const v1::LeaseInfo& info);
std::string Detail(const v1::QueueInfo& info);
// Includes a table of the nodes. "#3" is slot 3; a slot is a storage as the
// graph numbers them.
std::string Detail(const v1::GraphInfo& info);

// Says whether a tenant gets new leases, and if not, since when.
std::string DescribeQueue(bool stopped, const v1::QueueStop& stop);

// Describes the migration of a virtual device in one line.
std::string DescribeMigration(const v1::MigrationInfo& migration);

// Says which of a session's virtual devices migrate, and why others stay.
std::string Detail(const v1::MigrateSessionResponse& response);

// Returns the effective class, and whether it was declared.
std::string DescribePriority(const v1::Urgency& urgency);

// Describes the registered models in one line: their number and size, the
// largest ones, and the number of refused ones.
std::string DescribeModels(const v1::SessionUse& use);

// Says in one line how often runs yielded, and to which runs last.
std::string DescribeYielded(const v1::Yielded& yielded);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_DETAIL_H_
