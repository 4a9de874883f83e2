#include "storage/origins/libnbd.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <stdexcept>

namespace gpunbd::storage {

namespace {

constexpr const char* library_name = "libnbd.so.0";

struct Unavailable : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void* open_library() {
    void* const library = ::dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* const error = ::dlerror();
        throw Unavailable(error == nullptr ? "unknown error" : error);
    }
    return library;
}

}  // namespace

template <typename Function>
Function Libnbd::find(const char* name) const {
    const auto function = reinterpret_cast<Function>(::dlsym(library_, name));
    if (function == nullptr) throw Unavailable(fmt::format("it lacks {}", name));
    return function;
}

Libnbd::Libnbd() : library_(open_library()) {}

const Libnbd* Libnbd::load(std::string& why) {
    try {
        static const Libnbd library;
        return &library;
    } catch (const Unavailable& error) {
        why = fmt::format("{} cannot be loaded ({}); install libnbd0", library_name, error.what());
        return nullptr;
    }
}

}  // namespace gpunbd::storage
