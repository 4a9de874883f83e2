// Logs that pages stay although other programs need their memory: once, until reset().
#pragma once

#include <string_view>

#include "storage/migration/migrator.hpp"

namespace gpunbd::storage {

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
