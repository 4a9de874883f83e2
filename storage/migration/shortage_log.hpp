#pragma once

#include <string>
#include <string_view>

#include "storage/migration/migrator.hpp"

namespace gpunbd::storage {

// Why a migration released less memory than was wanted.

// For users, without a full stop.
std::string reason_for_staying(const Migration& result);

// Logs that pages stay although other programs need their memory: once, until reset().
// Not thread-safe.
class ShortageLog {
 public:
    // `need`: why memory was to be given back, as a sentence without its end. Returns false if all
    // of it was.
    bool report(const Device& device, const Migration& result, std::string_view need);
    void reset() { is_reported_ = false; }

 private:
    bool is_reported_ = false;
};

}  // namespace gpunbd::storage
