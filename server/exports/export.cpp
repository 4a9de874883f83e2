#include "server/exports/export.hpp"

namespace gpunbd::server {

protocol::ExportInfo info_of(const config::ExportOptions& options) {
    return {.name = options.name,
            .description = options.description,
            .read_only = options.read_only,
            .tls_required = options.tls_required,
            .minimum_block = static_cast<std::uint32_t>(options.block_size.minimum),
            .preferred_block = static_cast<std::uint32_t>(options.block_size.best()),
            .maximum_payload = static_cast<std::uint32_t>(options.block_size.maximum)};
}

}  // namespace gpunbd::server
