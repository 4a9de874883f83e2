// BLOCK_STATUS: reports the page table as extents, for each context that the request names.
#pragma once

#include <cstddef>
#include <vector>

#include "server/nbd/operation.hpp"

namespace gpunbd::server {

class StatusOperation : public Operation {
 public:
    // A reply may end before the range does ("NBD_CMD_BLOCK_STATUS"). So each context of a request
    // takes no longer than a turn of its connection: it looks at no more pages than 64 GiB have at
    // the default page size, and finds no more runs of equal pages.
    static constexpr std::uint64_t max_pages = 32 * 1024;
    static constexpr std::uint64_t max_runs = 2048;

    // The most pages and runs of each context.
    static std::uint64_t pages_read(const protocol::Command& command, std::uint64_t page_size);
    static std::uint64_t runs_found(const protocol::Command& command, std::uint64_t page_size);
    // The most bytes that its answer takes.
    static std::uint64_t max_memory(const protocol::Command& command, std::uint64_t page_size);

    void sent() override;
    void abandon() override;

 private:
    void begin() override;
    void moved() override {}
    void give_back_to(OperationPools& pools) override;
    void find_extents(protocol::MetaContext context, std::vector<protocol::Extent>& extents) const;

    std::vector<std::byte> reply_;
};

}  // namespace gpunbd::server
