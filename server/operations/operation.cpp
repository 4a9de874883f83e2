#include "server/operations/operation.hpp"

#include <new>

namespace gpunbd::server {

void Operation::transfer_moved(storage::Transfer&) {
    OperationContext& context = *context_;  // the operation may be gone after
    try {
        moved();
    } catch (const std::bad_alloc&) {
        context.hang_up("no memory is left for its answers");
        context.flush_soon();
    }
}

}  // namespace gpunbd::server
