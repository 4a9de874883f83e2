// An address that cannot be listened on: one line that says why and what would be right, and what a
// caller may decide by.
#pragma once

#include <stdexcept>
#include <string>

#include "server/listening/port_holder.hpp"

namespace gpunbd::server {

struct AddressError : std::runtime_error {
    enum class Kind {
        taken,   // somebody listens there, `holder` if it can be told
        absent,  // this machine has no such address
        other,
    };
    AddressError(Kind what_kind, const std::string& text, Holder who = {})
        : std::runtime_error(text), kind(what_kind), holder(std::move(who)) {}

    Kind kind;
    Holder holder;
};

}  // namespace gpunbd::server
