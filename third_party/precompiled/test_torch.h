// As torch.h, for tests.
#include "test.h"
#include "torch.h"
