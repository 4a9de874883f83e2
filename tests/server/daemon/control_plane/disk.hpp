// A disk on which reads or writes of image files wait or fail, from a given call on. The program is
// linked with --wrap for these calls. Calls of the main thread neither count nor fail.
#pragma once

#include <cstdint>
#include <string>

namespace gpunbd::server::test::disk {

enum class Call : std::uint8_t { read, write };

// Files with this prefix are images.
void set_folder(const std::string& folder);
// All calls of this kind fail from the given one on, until release().
void fail(Call call, std::uint64_t from);
// The given read waits for release().
void hold(std::uint64_t read);
bool is_holding();
// Whether a call has failed since the last release().
bool has_failed();
// The disk works again. `error`: of the call that waits; 0: it succeeds.
void release(int error = 0);

}  // namespace gpunbd::server::test::disk
