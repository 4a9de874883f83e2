// Why a migration released less memory than was wanted.
#pragma once

#include <string>

#include "storage/migration/migrator.hpp"

namespace gpunbd::storage {

// For users, without a full stop.
std::string reason_for_staying(const Migration& result);

}  // namespace gpunbd::storage
