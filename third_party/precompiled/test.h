// As library.h, for tests.
#define DJINN_PRECOMPILED_TEST

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "library.h"
