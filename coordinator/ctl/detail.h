// All that is known of one object, for people: a line each, with a heading.
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
// With a table of the nodes. "#3" is slot 3; a slot is a storage as the graph
// numbers them.
std::string Detail(const v1::GraphInfo& info);

// Whether a tenant gets new leases, and if not, since when.
std::string DescribeQueue(bool stopped, const v1::QueueStop& stop);

// A virtual device's way to another worker, in a line.
std::string DescribeMigration(const v1::MigrationInfo& migration);

// Which of a session's virtual devices were asked to go, and why others stay.
std::string Detail(const v1::MigrateSessionResponse& response);

// The class that counts, and whether anybody declared it.
std::string DescribePriority(const v1::Urgency& urgency);

// How many models are registered, with how much, which are the largest, and
// how many were refused, in a line.
std::string DescribeModels(const v1::SessionUse& use);

// How often runs yielded and to whom last, in a line.
std::string DescribeYielded(const v1::Yielded& yielded);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_DETAIL_H_
