#include "storage/origins/origin_claim.hpp"

#include <fmt/format.h>

#include <map>

#include "storage/base/mutex.hpp"

namespace gpunbd::storage {

namespace {

struct Claimed {
    std::string origin;
    std::string user;
    bool is_writable = false;
};

struct Claims {
    Mutex mutex;
    std::map<std::uint64_t, Claimed> all GUARDED_BY(mutex);
    std::uint64_t last GUARDED_BY(mutex) = 0;
};

Claims& claims() {
    static Claims all;
    return all;
}

}  // namespace

std::variant<OriginClaim, std::string> OriginClaim::make(const std::string& origin,
                                                         const std::string& user,
                                                         bool is_writable) {
    Claims& known = claims();
    const Lock lock(known.mutex);
    for (const auto& [number, each] : known.all) {
        if (each.origin != origin || (!each.is_writable && !is_writable)) continue;
        return fmt::format(
            "{}: it is the origin of the export '{}', and a writable one has one cache; {}", origin,
            each.user,
            each.user == user ? "restart the server to change it" : "remove that export first");
    }
    known.all.emplace(++known.last,
                      Claimed{.origin = origin, .user = user, .is_writable = is_writable});
    return OriginClaim(known.last);
}

OriginClaim::~OriginClaim() {
    if (number_ == 0) return;
    Claims& known = claims();
    const Lock lock(known.mutex);
    known.all.erase(number_);
}

}  // namespace gpunbd::storage
