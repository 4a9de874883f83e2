#include "protocol/export_info.hpp"

namespace gpunbd::protocol {

std::uint16_t ExportInfo::transmission_flags(Headers headers) const {
    namespace flag = transmission_flag;
    unsigned flags = flag::has_flags | flag::send_flush | flag::send_fua | flag::can_multi_conn |
                     flag::send_cache;
    if (read_only) {
        flags |= flag::read_only;
    } else {
        flags |= flag::send_trim | flag::send_write_zeroes | flag::send_fast_zero;
    }
    if (headers != Headers::simple) flags |= flag::send_df;
    if (headers == Headers::extended) flags |= flag::block_status_payload;
    return static_cast<std::uint16_t>(flags);
}

bool ExportInfo::default_block_sizes() const {
    return minimum_block == 1 && maximum_payload >= max_payload;
}

}  // namespace gpunbd::protocol
