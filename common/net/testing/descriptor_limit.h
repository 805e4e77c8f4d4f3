// Limits the descriptors of a test's process for a while.
#ifndef COMMON_NET_TESTING_DESCRIPTOR_LIMIT_H_
#define COMMON_NET_TESTING_DESCRIPTOR_LIMIT_H_

#include <sys/resource.h>

#include "gtest/gtest.h"

namespace djinn {

class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t count) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit limit = before_;
    limit.rlim_cur = count;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~DescriptorLimit() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace djinn

#endif  // COMMON_NET_TESTING_DESCRIPTOR_LIMIT_H_
