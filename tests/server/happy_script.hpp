// The happy script: one request of each kind. It is written once, and replayed with each step
// failing.
#pragma once

#include <vector>

#include "tests/server/rig.hpp"

namespace gpunbd::server::test {

constexpr std::uint32_t page = 32 * kib;

// For a Rig of 8 pages and a fraction. Chunks, pages and devices end within the requests, and the
// large requests are longer than the staging memory.
inline std::vector<Ask> happy_script(bool structured, bool extended = false) {
    namespace flag = protocol::command_flag;
    std::vector<Ask> script = {
        {CommandType::write, 10, 100, 0, 1},
        {CommandType::write, page - 1000, 3 * page + 2000, 0, 2},
        {CommandType::flush, 0, 0},
        {CommandType::read, page - 500, 1000},
        {CommandType::read, 0, 8 * page + 5000},
        {CommandType::trim, page / 2, 2 * page},
        {CommandType::write_zeroes, 5 * page + 7, 2 * page, flag::no_hole},
        {CommandType::write_zeroes, 3 * page + 9, page},
        {CommandType::cache, 0, 4 * page},
        {CommandType::write, 7 * page, page + 5000, flag::fua, 3},
        {CommandType::write, 0, 0},
        {CommandType::read, 5, 0},
        {CommandType::read, page / 2, 7 * page},
        {CommandType::write, 0, 2 * page, 0, 4},
    };
    if (structured) {
        script.push_back({CommandType::block_status, 0, 8 * page + 5000});
        script.push_back({CommandType::block_status, 100, 4 * page, flag::req_one});
        script.push_back({CommandType::read, 0, 8 * page, flag::df});
    }
    if (extended) {
        script.push_back({CommandType::block_status, 0, 8 * page + 5000, flag::payload_len});
        script.push_back({CommandType::write, page, 10, flag::payload_len, 5});
    }
    script.push_back({CommandType::write_zeroes, 0, 8 * page + 5000});
    script.push_back({CommandType::read, 0, 8 * page + 5000});
    return script;
}

// The reply is one chunk, or one header with all data, so it cannot fail in the middle.
inline bool in_one(const Ask& ask, bool structured) {
    return ask.type == CommandType::read &&
           (!structured || (ask.flags & protocol::command_flag::df) != 0);
}

struct Variant {
    const char* name;
    std::string_view devices;
    bool structured;
    bool extended = false;

    Handshake handshake() const { return {.structured = structured, .extended = extended}; }
};
inline std::vector<Ask> happy_script(const Variant& variant) {
    return happy_script(variant.structured, variant.extended);
}
constexpr Variant variants[] = {
    {"staged, structured", "s", true},     {"staged, simple", "s", false},
    {"in place, structured", "h", true},   {"in place, simple", "h", false},
    {"striped, structured", "shss", true}, {"striped, simple", "shss", false},
    {"staged, extended", "s", true, true}, {"in place, extended", "h", true, true},
};

}  // namespace gpunbd::server::test
