// The precompiled header of the tests.
#pragma once
#include "packstone/base/pch.h"
#include <gtest/gtest.h>
