// Makes messages of their texts, for tests.
#ifndef COORDINATOR_CTL_PARSE_TESTING_H_
#define COORDINATOR_CTL_PARSE_TESTING_H_

#include <string>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace djinn::ctl {

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_PARSE_TESTING_H_
